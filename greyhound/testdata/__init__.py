"""Labelled data made for tests and measurements: iteration times and streams of calls whose truth is known."""
