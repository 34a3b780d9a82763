package cluster

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// lingering is how long a Service stays in force after it has become another proxy's. That one needs time until it
// serves it: kube-proxy syncs once a second by default (minSyncPeriod), a sync takes a while, and it learns of the
// endpoints only when the EndpointSlice controller has taken the label from the slices, too. While neither serves the
// Service, new connections fail; while both do, each is served by whichever comes first in the kernel.
const lingering = 5 * time.Second

// departure are the objects that became another proxy's in one change. They go together.
type departure struct{ objects []convert.ObjectKey }

// leave takes in that an object is another proxy's now, and reports whether its last good version stays in force for a
// while. What happens to the object meanwhile is not taken in, but that it is deleted or comes back. An object of that
// name with another UID shows that ours was deleted.
//
// The port that load balancers ask about the Service's health is let go at once: two processes cannot listen there, and
// kube-proxy tries again only with a later sync.
func (s *state) leave(key convert.ObjectKey, uid string) (stays bool) {
	last := s.objects[key.Kind][key.Name]
	if last.value == nil || last.uid != uid {
		return false
	}
	if s.leaving[key] != nil {
		return true
	}
	if s.departed == nil {
		s.departed = &departure{}
	}
	s.departed.objects = append(s.departed.objects, key)
	s.leaving[key] = s.departed
	if service, isService := last.value.(*model.Service); isService && service.HealthCheckNodePort != 0 {
		unchecked := *service
		unchecked.HealthCheckNodePort = 0
		s.objects[key.Kind][key.Name] = kept{uid, &unchecked}
		s.decide(key.Kind, key.Name, &unchecked)
	}
	return true
}

// takeDeparture returns the objects that left since the last call; nil if none did.
func (s *state) takeDeparture() *departure {
	departed := s.departed
	s.departed = nil
	return departed
}

// end takes those away that left then and have not come back since.
func (s *state) end(departed *departure) {
	for _, key := range departed.objects {
		if s.leaving[key] == departed {
			s.remove(key.Kind, key.Name)
		}
	}
}
