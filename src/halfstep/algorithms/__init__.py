"""Better accuracy: one algorithm per package, its maths beside what binds it to a model."""
