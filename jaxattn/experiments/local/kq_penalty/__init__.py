"""The experiment kq-penalty: measure, claims, figure."""
