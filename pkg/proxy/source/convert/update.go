package convert

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Update is what changed in a source since the update before.
type Update struct {
	Change model.Change
	// Rejected are the new problems, PutRight those that are solved, both sorted.
	Rejected, PutRight []model.Finding
}

// NewUpdate returns the update that leads from some problems to others.
func NewUpdate(change model.Change, before, after []model.Finding) Update {
	return Update{Change: change, Rejected: subtract(after, before), PutRight: subtract(before, after)}
}

// IsEmpty reports whether nothing is different.
func (u Update) IsEmpty() bool { return u.Change.IsEmpty() && len(u.Rejected)+len(u.PutRight) == 0 }

// subtract returns the problems that are not among others, sorted.
func subtract(problems, others []model.Finding) []model.Finding {
	isOther := make(map[model.Finding]bool, len(others))
	for _, problem := range others {
		isOther[problem] = true
	}
	return SortProblems(slices.DeleteFunc(slices.Clone(problems), func(problem model.Finding) bool { return isOther[problem] }))
}
