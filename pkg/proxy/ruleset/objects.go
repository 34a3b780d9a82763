package ruleset

// Objects are what a family's table holds in the kernel, as far as resynchronising needs to know.
type Objects struct {
	// Table reports whether the table is there.
	Table bool
	// Rebuild reports that the table cannot be changed into what is wanted: it must be deleted and added again, in the same batch.
	Rebuild bool
	Chains  []string
	Sets    []string
	// Ranges are the elements of allowed-sources. They are changed and not written anew: the kernel shows a set of ranges a moment
	// later than the other sets of a transaction, and clients that may dial would be dropped meanwhile; and it takes the square of
	// their number to remove them all.
	Ranges []Element
}
