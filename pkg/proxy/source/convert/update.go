package convert

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Update is the change of a source since the previous update.
type Update struct {
	Change model.Change
	// The new problems and the resolved ones, both sorted.
	NewProblems, ResolvedProblems []model.Finding
}

// NewUpdate returns an update for a change and the difference between two lists of problems.
func NewUpdate(change model.Change, before, after []model.Finding) Update {
	return Update{Change: change, NewProblems: subtract(after, before), ResolvedProblems: subtract(before, after)}
}

// IsEmpty reports whether nothing has changed.
func (u Update) IsEmpty() bool {
	return u.Change.IsEmpty() && len(u.NewProblems)+len(u.ResolvedProblems) == 0
}

// subtract returns the problems that are not among others, sorted.
func subtract(problems, others []model.Finding) []model.Finding {
	isOther := make(map[model.Finding]bool, len(others))
	for _, problem := range others {
		isOther[problem] = true
	}
	return SortProblems(slices.DeleteFunc(slices.Clone(problems), func(problem model.Finding) bool { return isOther[problem] }))
}
