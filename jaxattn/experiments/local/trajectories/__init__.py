"""Do the paths of W z and K Q^T z in the plane become parallel to the rays of their max-margin solutions?"""
