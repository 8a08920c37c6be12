"""The paper's figures, to stand beside ours: means over its random seeds, by (dataset, task) and by arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quartet.paper.arms import ABLATION, CAPACITY, REFERENCE
from quartet.paper.statistics import Comparison, Split, Spread

NUM_SEEDS = 4
METRIC = "roc_auc"  # of all its tasks
RATIOS = ("time an epoch", "throughput", "precomputation", "peak memory", "cache", "parameters")

Table = Mapping[tuple[str, str], str]

# Appendix A.4.2: the means of the arms, then their standard deviations. RGP is from A.4.4, which has test alone, and
# whose other columns differ from A.4.2 by up to 0.0042.
_TEST_ARMS = ("QUARTET", "RelGT", "HGT", "RGP")
_TEST = {
    ("rel-amazon", "item-churn"): ".8262 .8249 .7758 .7641 .0010 .0005 .0075 .0093",
    ("rel-amazon", "user-churn"): ".7001 .7024 .6626 .6283 .0016 .0015 .0041 .0041",
    ("rel-avito", "user-clicks"): ".6481 .6425 .6501 .6515 .0122 .0159 .0104 .0033",
    ("rel-avito", "user-visits"): ".6508 .6639 .6410 .6534 .0050 .0020 .0068 .0009",
    ("rel-event", "user-ignore"): ".7392 .7348 .7256 .7765 .0035 .0183 .0080 .0312",
    ("rel-event", "user-repeat"): ".7563 .7160 .7539 .6849 .0175 .0316 .0157 .0520",
    ("rel-f1", "driver-dnf"): ".7044 .7133 .6595 .7071 .0180 .0416 .0627 .0184",
    ("rel-f1", "driver-top3"): ".8517 .8067 .7384 .7815 .0156 .0402 .0574 .0415",
    ("rel-hm", "user-churn"): ".6976 .6975 .6746 .6777 .0011 .0016 .0036 .0004",
    ("rel-stack", "user-badge"): ".8528 .8764 .8688 .8284 .0094 .0016 .0025 .0064",
    ("rel-stack", "user-engagement"): ".9063 .9047 .8899 .8535 .0010 .0009 .0018 .0153",
    ("rel-trial", "study-outcome"): ".7059 .6632 .6345 .6814 .0044 .0177 .0251 .0092",
}
_VALIDATION_ARMS = ("QUARTET", "RelGT", "HGT")
_VALIDATION = {
    ("rel-amazon", "item-churn"): ".8227 .8218 .7776 .0007 .0004 .0054",
    ("rel-amazon", "user-churn"): ".7003 .7023 .6664 .0008 .0013 .0034",
    ("rel-avito", "user-clicks"): ".6087 .6614 .5882 .0023 .0043 .0189",
    ("rel-avito", "user-visits"): ".6892 .6986 .6578 .0032 .0021 .0085",
    ("rel-event", "user-ignore"): ".8176 .7691 .7564 .0055 .0051 .0024",
    ("rel-event", "user-repeat"): ".7292 .7101 .6679 .0141 .0121 .0013",
    ("rel-f1", "driver-dnf"): ".8040 .8029 .7756 .0041 .0086 .0348",
    ("rel-f1", "driver-top3"): ".8741 .8843 .7620 .0080 .0118 .0633",
    ("rel-hm", "user-churn"): ".7033 .7049 .6807 .0011 .0012 .0041",
    ("rel-stack", "user-badge"): ".8580 .8884 .8818 .0115 .0010 .0018",
    ("rel-stack", "user-engagement"): ".9029 .9010 .8897 .0005 .0008 .0012",
    ("rel-trial", "study-outcome"): ".6746 .6751 .6207 .0067 .0073 .0303",
}
# Appendix A.4.3: means and standard deviations on test, in the order of ABLATION.
_ABLATION = {
    ("rel-amazon", "item-churn"): ".8262 .7451 .8242 .8244 .8249 .8253 .8245 .8257 .8254 .8251",
    ("rel-amazon", "user-churn"): ".7001 .6629 .7011 .6923 .6981 .6954 .6996 .7007 .6976 .6962",
    ("rel-avito", "user-clicks"): ".6481 .5952 .6348 .6534 .6522 .5826 .6410 .6224 .6111 .6367",
    ("rel-avito", "user-visits"): ".6508 .6409 .6506 .6428 .6508 .6450 .6435 .6293 .6458 .6333",
    ("rel-event", "user-ignore"): ".7392 .7740 .7334 .7336 .7392 .7380 .7272 .7270 .7295 .7410",
    ("rel-event", "user-repeat"): ".7563 .5642 .7425 .7099 .6780 .7388 .7283 .7450 .7359 .7442",
    ("rel-f1", "driver-dnf"): ".7044 .6743 .6641 .7015 .7103 .7059 .6714 .6847 .6789 .6803",
    ("rel-f1", "driver-top3"): ".8517 .7074 .7925 .8223 .7758 .8176 .8130 .8201 .8403 .8247",
    ("rel-hm", "user-churn"): ".6976 .6748 .6970 .6961 .6988 .6964 .6949 .6967 .6957 .6953",
    ("rel-stack", "user-badge"): ".8528 .8182 .7859 .8339 .8262 .8122 .8163 .8157 .8275 .8319",
    ("rel-stack", "user-engagement"): ".9063 .8644 .9064 .9056 .9059 .9051 .9054 .9043 .9038 .9047",
    ("rel-trial", "study-outcome"): ".7059 .6925 .7014 .6804 .7038 .6930 .6931 .7045 .6974 .6889",
}
_ABLATION_SD = {
    ("rel-amazon", "item-churn"): ".0010 .0017 .0007 .0008 .0008 .0011 .0009 .0008 .0009 .0013",
    ("rel-amazon", "user-churn"): ".0016 .0008 .0008 .0032 .0016 .0006 .0017 .0011 .0025 .0022",
    ("rel-avito", "user-clicks"): ".0122 .0243 .0299 .0034 .0068 .0847 .0081 .0128 .0460 .0231",
    ("rel-avito", "user-visits"): ".0050 .0046 .0032 .0136 .0034 .0097 .0062 .0157 .0160 .0202",
    ("rel-event", "user-ignore"): ".0035 .0107 .0050 .0279 .0139 .0048 .0100 .0075 .0151 .0098",
    ("rel-event", "user-repeat"): ".0175 .0664 .0168 .0615 .1072 .0104 .0228 .0235 .0327 .0244",
    ("rel-f1", "driver-dnf"): ".0180 .0105 .0337 .0169 .0119 .0155 .0292 .0183 .0236 .0086",
    ("rel-f1", "driver-top3"): ".0156 .0161 .0175 .0039 .0241 .0177 .0200 .0479 .0182 .0288",
    ("rel-hm", "user-churn"): ".0011 .0053 .0028 .0021 .0014 .0012 .0013 .0018 .0012 .0018",
    ("rel-stack", "user-badge"): ".0094 .0707 .0147 .0170 .0194 .0185 .0182 .0258 .0292 .0137",
    ("rel-stack", "user-engagement"): ".0010 .0024 .0007 .0011 .0010 .0012 .0004 .0023 .0018 .0025",
    ("rel-trial", "study-outcome"): ".0044 .0094 .0100 .0191 .0057 .0076 .0041 .0204 .0085 .0034",
}
# Appendix A.3.4: means, in the order of CAPACITY. What the paper reports is the best on test.
_CAPACITY_TEST = {
    ("rel-amazon", "item-churn"): ".8252 .8246 .8259 .8244 .8255 .8262 .8256 .8249 .8248",
    ("rel-amazon", "user-churn"): ".6995 .6983 .6976 .6969 .6988 .7001 .6962 .6977 .6983",
    ("rel-avito", "user-clicks"): ".5624 .6268 .6367 .6481 .6298 .6072 .6209 .6089 .6365",
    ("rel-avito", "user-visits"): ".6291 .6305 .6245 .6378 .6307 .6402 .6422 .6391 .6508",
    ("rel-event", "user-ignore"): ".7296 .7392 .7345 .7330 .7245 .7339 .7337 .7270 .7282",
    ("rel-event", "user-repeat"): ".7563 .7493 .7496 .7401 .7438 .7387 .7311 .7492 .7356",
    ("rel-f1", "driver-dnf"): ".6798 .6717 .6779 .6753 .6773 .6941 .7044 .6711 .6809",
    ("rel-f1", "driver-top3"): ".7855 .8042 .8427 .8391 .8348 .8265 .8188 .8517 .8180",
    ("rel-hm", "user-churn"): ".6967 .6949 .6960 .6956 .6957 .6960 .6947 .6976 .6957",
    ("rel-stack", "user-badge"): ".8287 .8093 .8201 .8159 .8213 .8300 .8199 .8344 .8528",
    ("rel-stack", "user-engagement"): ".9053 .9058 .9050 .9053 .9054 .9050 .9057 .9063 .9057",
    ("rel-trial", "study-outcome"): ".6963 .6995 .7059 .6986 .6959 .6962 .6783 .7015 .6975",
}
_CAPACITY_VALIDATION = {
    ("rel-amazon", "item-churn"): ".8217 .8215 .8221 .8211 .8221 .8227 .8219 .8214 .8213",
    ("rel-amazon", "user-churn"): ".7005 .6999 .6987 .6985 .6998 .7003 .6980 .6989 .6992",
    ("rel-avito", "user-clicks"): ".5591 .6148 .6055 .6087 .6110 .5988 .6115 .5935 .6065",
    ("rel-avito", "user-visits"): ".6738 .6792 .6769 .6818 .6783 .6851 .6821 .6834 .6892",
    ("rel-event", "user-ignore"): ".8092 .8176 .8061 .8086 .8076 .8119 .8143 .8066 .8111",
    ("rel-event", "user-repeat"): ".7292 .7323 .7228 .7319 .7337 .7399 .7327 .7267 .7323",
    ("rel-f1", "driver-dnf"): ".8104 .8091 .8040 .8084 .8060 .8088 .8040 .8067 .8074",
    ("rel-f1", "driver-top3"): ".8733 .8756 .8835 .8791 .8697 .8704 .8735 .8741 .8715",
    ("rel-hm", "user-churn"): ".7029 .7011 .7023 .7022 .7023 .7017 .7015 .7033 .7018",
    ("rel-stack", "user-badge"): ".8342 .8097 .8234 .8184 .8282 .8340 .8265 .8413 .8580",
    ("rel-stack", "user-engagement"): ".9019 .9020 .9023 .9020 .9021 .9017 .9025 .9029 .9028",
    ("rel-trial", "study-outcome"): ".6756 .6686 .6746 .6755 .6732 .6716 .6687 .6772 .6738",
}
# Appendix A.2.3: QUARTET over RelGT, in the order of RATIOS; only these tasks.
_EFFICIENCY = {
    ("rel-hm", "user-churn"): "1.01 1.74 0.10 1.70 3.60 2.23",
    ("rel-stack", "user-engagement"): "1.83 1.09 1.04 3.07 8.02 2.17",
    ("rel-amazon", "user-churn"): "0.84 2.09 0.31 2.52 8.72 2.30",
    ("rel-amazon", "item-churn"): "1.51 1.29 0.36 2.54 8.75 2.30",
    ("rel-stack", "user-badge"): "1.77 0.96 0.75 3.06 9.69 2.17",
}

_ABLATION_ARMS = tuple(arm.name for arm in ABLATION)
_CAPACITY_ARMS = tuple(arm.name for arm in CAPACITY)
_TABLES: dict[tuple[str, Split], tuple[Sequence[str], Sequence[Table]]] = {
    ("main", "test"): (_TEST_ARMS, [_TEST]),
    ("main", "validation"): (_VALIDATION_ARMS, [_VALIDATION]),
    ("ablation", "test"): (_ABLATION_ARMS, [_ABLATION, _ABLATION_SD]),
    ("capacity", "test"): (_CAPACITY_ARMS, [_CAPACITY_TEST]),
    ("capacity", "validation"): (_CAPACITY_ARMS, [_CAPACITY_VALIDATION]),
}


def paper(study: str, dataset: str, task: str, split: Split) -> dict[str, Spread]:
    """The paper's figure of each arm of a study on one task; nothing where it has none."""
    arms, tables = _TABLES.get((study, split), ((), ()))
    numbers = [float(word) for table in tables for word in table.get((dataset, task), "").split()]
    means, sds = numbers[: len(arms)], numbers[len(arms) :]
    return {
        arm: Spread(mean, sds[place] if sds else None, NUM_SEEDS)
        for place, (arm, mean) in enumerate(zip(arms, means, strict=bool(numbers)))
    }


def paper_selected(dataset: str, task: str) -> float | None:
    """What the paper's QUARTET has on test where its capacity is selected on validation, not on test."""
    validation = paper("capacity", dataset, task, "validation")
    best = max(validation, key=lambda arm: validation[arm].mean, default=None)
    return None if best is None else paper("capacity", dataset, task, "test")[best].mean


def paper_beside(compared: Comparison, split: Split) -> dict[str, Spread]:
    """The paper's figures that may stand beside ours: those of the same task and metric."""
    same_metric = compared.metric == METRIC
    return paper(compared.study, compared.dataset, compared.task, split) if same_metric else {}


def paper_changes(compared: Comparison) -> dict[str, float]:
    """The paper's Table 2: the change of test in percent of the reference's, of each other arm."""
    figures = paper_beside(compared, "test")
    reference = REFERENCE.get(compared.study, "")
    if reference not in figures:
        return {}
    base = figures.pop(reference).mean
    return {arm: 100 * (figure.mean - base) / base for arm, figure in figures.items()}


def paper_ratios(dataset: str, task: str) -> tuple[str, dict[str, float]]:
    """What QUARTET costs over RelGT by the names of RATIOS, and of what: the task, or the mean of all that it timed."""
    lines = [list(map(float, cells.split())) for cells in _EFFICIENCY.values()]
    mean = [sum(ratios) / len(lines) for ratios in zip(*lines, strict=True)]
    own = _EFFICIENCY.get((dataset, task), "").split()
    label = "the paper" if own else f"the paper, mean of {len(lines)} other tasks"
    return label, dict(zip(RATIOS, map(float, own) if own else mean, strict=True))
