"""Find the reasons for a resource: the objects behind each part of the resource, and the rules that decided it."""
