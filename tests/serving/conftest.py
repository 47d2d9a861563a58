from tests.serving.recorded_tests import copied, recorded

__all__ = ["copied", "recorded"]
