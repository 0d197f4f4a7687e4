"""Second stages that several topics share: records in, solved and certified datasets out."""
