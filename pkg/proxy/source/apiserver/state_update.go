package apiserver

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// takeUpdate returns the changes since the last call, and whether there are any.
func (s *state) takeUpdate() (convert.Update, bool) {
	var before, after []model.Finding
	for key, problems := range s.reported {
		before, after = append(before, problems...), append(after, s.problems[key]...)
	}
	s.nodes.TakeChanges(&s.change)
	update := convert.NewUpdate(s.change, before, after)
	s.change = model.Change{}
	clear(s.reported)
	return update, !update.IsEmpty()
}

// hasChanges reports whether there may be an update; there is none if the only change is a problem that was resolved
// before its delivery.
func (s *state) hasChanges() bool {
	return len(s.reported) > 0 || !s.change.IsEmpty() || s.nodes.HasChanges()
}

// rejections returns the invalid objects, with their last known good versions.
func (s *state) rejections() []convert.Rejection {
	var rejections []convert.Rejection
	for key, problems := range s.problems {
		if slices.ContainsFunc(problems, model.Finding.IsRejection) {
			rejections = append(rejections, convert.Rejection{Kind: key.Kind.Name, Name: key.Name, Applied: s.objects[key.Kind][key.Name].value})
		}
	}
	return rejections
}

// next returns the next deadline, and whether there is one.
func (s *state) next() (at time.Time, some bool) {
	at, some = s.handoffs.Earliest()
	if other, isOther := s.nodes.Next(); isOther && (!some || other.Before(at)) {
		return other, true
	}
	return at, some
}

// expire processes the expired deadlines: it removes Services at the end of their handoff, updates nodes, and ends
// waiting. It returns the timeouts of waiting Services, as nodes.Store.Expire does.
func (s *state) expire() (forNodes *nodes.WaitTimeout, forDemand int) {
	for _, key := range s.handoffs.PopExpired(s.now) {
		s.remove(key.Kind, key.Name)
	}
	forNodes, forDemand = s.nodes.Expire(s.now)
	s.deliverUnblocked()
	return forNodes, forDemand
}
