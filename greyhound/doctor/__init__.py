"""Looks at one host as an admin or a node health checker would: is everything there that a watched job needs?"""
