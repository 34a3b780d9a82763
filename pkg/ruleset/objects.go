package ruleset

// Objects are the names of what a family's table holds in the kernel, as far as resynchronising needs to know.
type Objects struct {
	// Table reports whether the table is there.
	Table bool
	// Rebuild reports that the table cannot be changed into what is wanted: it must be deleted and added again, in the same batch.
	Rebuild bool
	Chains  []string
	Sets    []string
}
