"""Analyzer and master: what runs beside the job."""
