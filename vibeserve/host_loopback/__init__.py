"""Every kind of host against the same runtime: verdict, ratio, and what a lost connection leaves."""
