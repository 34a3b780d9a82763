package demand

// Without switches off one part of the estimator; "" switches all on.
func Without(part string) { without = part }
