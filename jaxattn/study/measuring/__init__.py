"""Measurements that several topics share, from records to certified datasets."""
