package ruleset

import (
	"iter"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Service is what one Service owns in the tables.
type Service struct {
	Name  model.ObjectName
	Ports []Port
}

// elements returns what the Service owns in one set of one family.
func (s Service) elements(family model.Family, set Set) iter.Seq[Element] {
	return func(yield func(Element) bool) { s.each(family, set, yield) }
}

// each does what elements does without another iterator. It reports whether yield accepted all of them.
func (s *Service) each(family model.Family, set Set, yield func(Element) bool) bool {
	for i := range s.Ports {
		if s.Ports[i].ID.Family == family && !s.Ports[i].each(set, yield) {
			return false
		}
	}
	return true
}

// Frontends yields the frontends of all ports.
func (s Service) Frontends() iter.Seq[model.Frontend] {
	return func(yield func(model.Frontend) bool) {
		for i := range s.Ports {
			for j := range s.Ports[i].Frontends {
				if !yield(s.Ports[i].Frontends[j].Frontend) {
					return
				}
			}
		}
	}
}

// isIn reports whether the Service has a port in a family.
func (s Service) isIn(family model.Family) bool {
	for i := range s.Ports {
		if s.Ports[i].ID.Family == family {
			return true
		}
	}
	return false
}

// byID returns the Service's ports by their IDs.
func (s Service) byID() map[model.PortID]*Port {
	if len(s.Ports) == 0 {
		return nil
	}
	ports := make(map[model.PortID]*Port, len(s.Ports))
	for i := range s.Ports {
		ports[s.Ports[i].ID] = &s.Ports[i]
	}
	return ports
}

// withStableSlots returns the Service with its endpoints in slots that differ least from those of have.
func (s Service) withStableSlots(have Service) Service {
	before, ports := have.byID(), slices.Clone(s.Ports)
	for i := range ports {
		if old := before[ports[i].ID]; old != nil {
			ports[i].Cluster = StableSlots(old.Cluster, ports[i].Cluster)
			ports[i].Local = StableSlots(old.Local, ports[i].Local)
		}
	}
	return Service{Name: s.Name, Ports: ports}
}
