package cluster

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// take returns what is new since the last call, and whether anything is.
func (s *state) take() (convert.Update, bool) {
	var before, after []model.Finding
	for key, problems := range s.judged {
		before, after = append(before, problems...), append(after, s.problems[key]...)
	}
	s.nodes.Take(&s.change)
	update := convert.NewUpdate(s.change, before, after)
	s.change = model.Change{}
	clear(s.judged)
	return update, !update.IsEmpty()
}

// mayHaveNews reports whether there may be something to deliver: what was refused may have been put right meanwhile.
func (s *state) mayHaveNews() bool {
	return len(s.judged) > 0 || !s.change.IsEmpty() || s.nodes.HasNews()
}

// refusals returns the objects that are refused, with their last good versions.
func (s *state) refusals() []convert.Refusal {
	var refusals []convert.Refusal
	for key, problems := range s.problems {
		if slices.ContainsFunc(problems, model.Finding.IsRefusal) {
			refusals = append(refusals, convert.Refusal{Kind: key.Kind.Name, Name: key.Name, InForce: s.objects[key.Kind][key.Name].value})
		}
	}
	return refusals
}

// next returns when something is due next, and whether anything is.
func (s *state) next() (at time.Time, some bool) {
	at, some = s.leaving.Next()
	if other, isOther := s.nodes.Next(); isOther && (!some || other.Before(at)) {
		return other, true
	}
	return at, some
}

// expire does what is due: Services that left go, nodes are dealt with, and waiting ends. It returns what Services waited
// for in vain, as Directory.Expire does.
func (s *state) expire() (forNodes *nodes.Vain, forDemand int) {
	for _, key := range s.leaving.Due(s.now) {
		s.remove(key.Kind, key.Name)
	}
	forNodes, forDemand = s.nodes.Expire(s.now)
	s.serve()
	return forNodes, forDemand
}
