"""Why a resource is as it is: the objects behind each part of it, and the rule by which they, or nobody, decided it."""
