"""Queries that the tests and the page on queries share: wrong ones, and those that say stored tasks."""

from __future__ import annotations

from dataclasses import dataclass

OF = "VIA orders.customer"
FOR = "FOR EACH customers.id"
COUNT = f"COUNT(orders.* {OF}, 0, 30)"

# A query, its code, a part of the message, a part of the repair, and what the caret points at.
CASES = [
    (f"PREDICT COUNT(orders.*, 0, 30 {FOR}", "Q01", 'expected ")", ","', "docs/query.md", "FOR"),
    ("PREDICT COUNT(orders.*, 0, 30)", "Q01", "the query ends; expected", "FOR EACH table.key", ""),
    ("PREDICT orders.status EACH orders.id", "Q01", '"EACH" cannot stand here', "write FOR EACH", "EACH"),
    ("SELECT COUNT(*) FROM orders", "Q01", "expected PREDICT", "begin with PREDICT", "SELECT"),
    (f"PREDICT COUNT(orders.*, 0, 30 days) {FOR}", "Q01", '"days" cannot stand here', "a comma before", "days"),
    (f"PREDICT {COUNT} FOR EACH customers", "Q01", 'the query ends; expected "."', "table.column", ""),
    (f"PREDICT COUNT(orders, 0, 30) {FOR}", "Q01", '"," cannot stand here; expected "."', "table.* counts", ","),
    (f"PREDICT {COUNT} ! 3 {FOR}", "Q01", '"!" cannot stand here', "docs/query.md", "!"),
    (f"PREDICT COUN(orders.*, 0, 30) {FOR}", "Q01", 'did you mean "COUNT"?', "use one of SUM", "COUN"),
    (f"PREDICT COUNT(order.*, 0, 30) {FOR}", "Q02", 'no table "order" (did you mean "orders"?)', "correct", "order"),
    (f"PREDICT SUM(orders.amuont, 0, 30) {FOR}", "Q02", '(did you mean "amount"?)', "correct", "amuont"),
    (f"PREDICT SUM(orders.price, 0, 30) {FOR}", "Q02", 'no column "price"', "products has one of that name", "price"),
    (f"PREDICT COUNT(orders.*, 0, 30) {FOR}", "Q03", "VIA orders.customer; VIA orders.payer",
     "orders.* VIA orders.customer", "orders.*"),
    (f"PREDICT COUNT(items.*, 0, 30) {FOR}", "Q03", "VIA (orders.customer, items.order)", "say which", "items.*"),
    (f"PREDICT COUNT(orders.* VIA orders.city, 0, 3) {FOR}", "Q03", "is no link (links of that table: orders.customer",
     "after VIA", "orders.city"),
    (f"PREDICT {COUNT} {FOR} WHERE visits.text = 'a'", "Q03", '"visits" cannot be reached from "customers"',
     "declare the link", "visits.text"),
    (f"PREDICT {COUNT} {FOR} WHERE orders.status = 'new'", "Q03", "cannot be reached", "LAST(orders.status, -INF, 0)",
     "orders.status"),
    (f"PREDICT {COUNT} {FOR} WHERE COUNT(visits.*) > 0", "Q03", "no path of 4 links", "declare the link", "visits.*"),
    (f"PREDICT COUNT(orders.* {OF}, 0, 3, fortnights) {FOR}", "Q04", '"fortnights" is no unit', "days", "fortnights"),
    (f"PREDICT COUNT(orders.* {OF}, 0, 1, year) {FOR}", "Q04", '"year" is no unit', "12 months", "year"),
    (f"PREDICT COUNT(orders.* {OF}, -7, 30) {FOR}", "Q04", "looks back", "begin at 0", "-7, 30"),
    (f"PREDICT COUNT(orders.* {OF}, -INF, 30) {FOR}", "Q04", "looks back", "begin at 0", "-INF, 30"),
    (f"PREDICT {COUNT} {FOR} WHERE COUNT(orders.* {OF}, -9, 1) > 0", "Q04", "WHERE looks ahead", "at 0", "-9, 1"),
    (f"PREDICT COUNT(orders.* {OF}, 30, 30) {FOR}", "Q04", "from 30 to 30 is empty", "(start, end]", "30, 30"),
    (f"PREDICT COUNT(orders.* {OF}, 0, 1.5) {FOR}", "Q04", '"1.5" cannot bound', "whole numbers", "1.5"),
    (f"PREDICT COUNT(orders.* {OF}, 0, 9999, months) {FOR}", "Q04", "three hundred years", "shorter",
     "0, 9999, months"),
    (f"PREDICT COUNT(orders.* {OF}) {FOR}", "Q04", "has no window", "COUNT(orders.*, 0, 30, days)",
     f"COUNT(orders.* {OF})"),
    (f"PREDICT {COUNT} > {'9' * 39} {FOR}", "Q05", "a number of 39 digits is too large", "at most 38", "9" * 39),
    (f"PREDICT COUNT(orders.*, 0, {'9' * 5000}) {FOR}", "Q05", "a number of 5,000 digits", "at most 38", ""),
    (f"PREDICT {COUNT} RANK TOP {'9' * 5000} {FOR}", "Q05", "a number of 5,000 digits", "at most 38", ""),
    (f"PREDICT {'NOT ' * 3000}{COUNT} > 1 {FOR}", "Q08", "more than 100 deep", "side by side", ""),
    (f"PREDICT {f'({COUNT} > 1 AND ({COUNT} > 2 OR ' * 99}{COUNT} > 1{'))' * 99} {FOR}", "Q08", "more than 100 deep",
     "side by side", ""),
    (f"PREDICT {COUNT} {FOR} WHERE cities.name = 'K\udcffln'", "Q01", "no letter of any text", "UTF-8", "\udcff"),
    (f"PREDICT {COUNT} {FOR} WHERE cities.name = 'K\0ln'", "Q01", "no letter of any text", "UTF-8", "\0"),
    (f"PREDICT {COUNT} RANK TOP 0 {FOR}", "Q04", "RANK 0 is none", "from 1 on", "0"),
    (f"PREDICT SUM(orders.status {OF}, 0, 30) {FOR}", "Q05", "holds text, which SUM cannot take", "COUNT_DISTINCT",
     "orders.status"),
    (f"PREDICT AVG(orders.status {OF}, 0, 30) {FOR}", "Q05", "holds text, which AVG cannot take", "numbers",
     "orders.status"),
    (f"PREDICT MAX(orders.placed {OF}, 0, 30) {FOR}", "Q05", "is a time, which no model predicts", "compare",
     f"MAX(orders.placed {OF}, 0, 30)"),
    (f"PREDICT SUM(orders.* {OF}, 0, 30) {FOR}", "Q05", "SUM needs a column", "SUM(orders.column", "orders.*"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.tags = 'a'", "Q05", "of a mixed type", "another column",
     "customers.tags = 'a'"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.age", "Q05", "is a value, not a condition", "IS NOT NULL",
     "customers.age"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.age = NULL", "Q05", "nothing equals NULL", "IS NULL", "NULL"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.age > 'old'", "Q05", "holds numbers", "without quotes",
     "customers.age > 'old'"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.age LIKE '3%'", "Q05", "not text", "use =", "customers.age LIKE '3%'"),
    (f"PREDICT {COUNT} {FOR} WHERE cities.name = 3", "Q05", "holds text", "'3'", "cities.name = 3"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.joined > 'soon'", "Q05", "'soon' is no time", "2024-01-31",
     "customers.joined > 'soon'"),
    (f"PREDICT {COUNT} {FOR} WHERE LAST(orders.is_gift {OF}) = 2", "Q05", "truth values", "TRUE or FALSE",
     f"LAST(orders.is_gift {OF}) = 2"),
    (f"PREDICT {COUNT} {FOR} WHERE customers.age > 1e999", "Q05", "too large", "smaller", "1e999"),
    (f"PREDICT {COUNT} FOR EACH customers.age", "Q06", "is not the key", "FOR EACH customers.id", "customers.age"),
    ("PREDICT COUNT(orders.*, 0, 30) FOR EACH visits.text", "Q06", "no primary key", "pkey", "visits.text"),
    ("PREDICT COUNT(products.*, 0, 30) FOR EACH orders.id", "Q07", '"products" has no time column', "time_col",
     "COUNT(products.*, 0, 30)"),
    ("PREDICT COUNT(products.*, 0, 30) FOR EACH orders.id", "Q07", "a window cannot", "link to it (",
     "COUNT(products.*, 0, 30)"),
    ("PREDICT products.price FOR EACH products.id", "Q07", "has no time column", "time_col", "products.price"),
    (f"PREDICT {COUNT} {FOR} ASSUMING customers.age = 3", "Q08", "ASSUMING is not supported", "WHERE",
     "customers.age = 3"),
    (f"PREDICT {COUNT} FORECAST 4 TIMEFRAMES {FOR}", "Q08", "several windows", "30, 60, days",
     "FORECAST 4 TIMEFRAMES"),
    (f"PREDICT {COUNT} > 0 CLASSIFY {FOR}", "Q08", "true or false", "take it out", "CLASSIFY"),
    (f"PREDICT {COUNT} RANK TOP 3 {FOR}", "Q08", "RANK needs a LIST_DISTINCT", "take it out", "RANK TOP 3"),
    (f"PREDICT LIST_DISTINCT(items.product {OF}, 0, 9) {FOR}", "Q08", "can only be ranked", "RANK TOP 10",
     f"LIST_DISTINCT(items.product {OF}, 0, 9)"),
    (f"PREDICT LIST_DISTINCT(orders.status {OF}, 0, 9) RANK TOP 3 {FOR}", "Q08", "is no link", "customer, payer",
     "orders.status"),
    (f"PREDICT {COUNT} > 0 AND customers.age > 3 {FOR}", "Q08", "a column in a target", "after WHERE",
     "customers.age"),
    ("PREDICT orders.status FOR EACH orders.id WHERE orders.amount > 3", "Q08", "not for those of a WHERE",
     "leave the WHERE out", "orders.amount > 3"),
    ("PREDICT customers.age FOR EACH orders.id", "Q03", 'not a column of "orders"', "LAST(customers.age",
     "customers.age"),
    ("PREDICT orders.placed FOR EACH orders.id", "Q05", "neither numbers nor text", "another", "orders.placed"),
]  # fmt: skip


@dataclass(frozen=True)
class Said:
    """A stored task and the query that says it; tasks that leave out the first days of the data are compared after."""

    source: str
    name: str
    query: str
    first_days: int = 0


SAID = [
    Said("rel-f1", "driver-dnf", "PREDICT MAX(results.statusId, 0, 30, days) > 1 FOR EACH drivers.driverId"),
    Said("rel-f1", "driver-top3", "PREDICT MIN(qualifying.position, 0, 30, days) <= 3 FOR EACH drivers.driverId"),
    Said("rel-f1", "driver-position", "PREDICT AVG(results.positionOrder, 0, 60, days) FOR EACH drivers.driverId"),
    Said("rel-f1", "driver-circuit-compete",
         "PREDICT LIST_DISTINCT(races.circuitId VIA results.driverId, 0, 365, days) RANK TOP 10 "
         "FOR EACH drivers.driverId"),
    Said("rel-f1", "qualifying-position", "PREDICT qualifying.position FOR EACH qualifying.qualifyId"),
    Said("rel-f1", "results-position", "PREDICT results.position FOR EACH results.resultId"),
    Said("rel-travel", "user-badge", "PREDICT COUNT(badges.*, 0, 91, days) > 0 FOR EACH users.Id"),
    Said("rel-travel", "post-upvote",
         "PREDICT COUNT(votes.* WHERE votes.VoteTypeId = 2, 0, 91, days) > 0 FOR EACH posts.Id "
         "WHERE posts.PostTypeId = 1 AND posts.OwnerUserId IS NOT NULL "
         "AND COUNT(votes.* WHERE votes.VoteTypeId = 2, -182, 0, days) > 0"),
    Said("rel-travel", "user-engagement",
         "PREDICT COUNT(posts.*, 0, 91, days) > 0 OR COUNT(votes.* VIA votes.UserId, 0, 91, days) > 0 "
         "OR COUNT(comments.* VIA comments.UserId, 0, 91, days) > 0 FOR EACH users.Id "
         "WHERE COUNT(posts.*) > 0 OR COUNT(votes.* VIA votes.UserId) > 0 "
         "OR COUNT(comments.* VIA comments.UserId) > 0"),
    Said("rel-travel", "user-post-comment",
         "PREDICT LIST_DISTINCT(comments.PostId VIA comments.UserId WHERE posts.OwnerUserId IS NOT NULL, 0, 91, days) "
         "RANK TOP 20 FOR EACH users.Id"),
    Said("rel-flights", "plane-idle",
         "PREDICT COUNT(flights.*, 0, 7, days) = 0 FOR EACH planes.plane_id WHERE COUNT(flights.*, -14, 0, days) > 0",
         first_days=14),
    Said("rel-flights", "plane-departures",
         "PREDICT COUNT(flights.*, 0, 7, days) FOR EACH planes.plane_id WHERE COUNT(flights.*, -14, 0, days) > 0",
         first_days=14),
    Said("rel-flights", "flight-late", "PREDICT flights.arrived_late FOR EACH flights.flight_id"),
    Said("demo", "plane-idle",
         "PREDICT COUNT(reports.* WHERE reports.status != 'cancelled', 0, 7, days) = 0 FOR EACH planes.plane_id "
         "WHERE COUNT(reports.* WHERE reports.status != 'cancelled', -14, 0, days) > 0", first_days=14),
    Said("demo", "airport-delay",
         "PREDICT AVG(reports.arr_delay VIA flights.dest_id WHERE reports.status = 'landed', 0, 7, days) "
         "FOR EACH airports.airport_id "
         "WHERE COUNT(reports.* VIA flights.dest_id WHERE reports.status = 'landed', -7, 0, days) >= 7", first_days=7),
]  # fmt: skip
