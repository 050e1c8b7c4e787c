import pytest

# These look for processes of Flower on the machine, and so must not run beside each other.
FLOWER = {"test_federation", "test_deployment"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files of a suite side by side, each in order, and those that start Flower one after the other."""
    for item in items:
        name = item.path.stem
        item.add_marker(pytest.mark.xdist_group("flower" if name in FLOWER else name))
    items.sort(key=lambda item: item.path.stem not in FLOWER)
