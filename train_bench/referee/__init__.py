"""Referee of other people's records: do their runs show what they claim?"""
