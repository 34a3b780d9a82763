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
func (s *state) next() (at time.Time, ok bool) {
	at, ok = s.handoffs.Earliest()
	if nodeDeadline, hasNodeDeadline := s.nodes.Next(); hasNodeDeadline && (!ok || nodeDeadline.Before(at)) {
		return nodeDeadline, true
	}
	return at, ok
}

// expire processes the expired deadlines: it removes Services at the end of their handoff, updates nodes, and ends
// waiting. It returns the timeouts of waiting Services, as nodes.Store.Expire does.
func (s *state) expire() (nodeTimeouts *nodes.WaitTimeout, demandTimeouts int) {
	for _, key := range s.handoffs.PopExpired(s.now) {
		s.remove(key.Kind, key.Name)
	}
	nodeTimeouts, demandTimeouts = s.nodes.Expire(s.now)
	s.deliverUnblocked()
	return nodeTimeouts, demandTimeouts
}
