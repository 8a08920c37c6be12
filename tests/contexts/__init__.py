import pytest

pytest.register_assert_rewrite("tests.contexts.twins", "tests.contexts.named", "tests.contexts.unnoticed")
