import pytest

pytest.register_assert_rewrite("tests.samplers.twins", "tests.samplers.named")
