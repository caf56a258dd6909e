"""What is ours in the libraries of others: losses for sentence-transformers, tasks for mteb.

>>> from dialnb.ecosystem import losses
>>> losses.HardNegativeNTXentLoss.paper
'dse'
"""
