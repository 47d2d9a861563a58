from tests.profile.clock import clock

__all__ = ["clock"]
