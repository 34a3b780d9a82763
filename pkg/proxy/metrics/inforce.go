package metrics

// PortReason is why Service ports have the endpoints that they have: the values of three labels.
type PortReason struct{ Family, TrafficPolicy, Reason string }

func (p PortReason) values() []string { return []string{p.Family, p.TrafficPolicy, p.Reason} }

// Services records how many Services are proxied now.
func (r *Recorder) Services(n int) { r.services.Set(float64(n)) }

// ServicePorts records how many Service ports of a family are proxied now.
func (r *Recorder) ServicePorts(family string, n int) {
	r.servicePorts.WithLabelValues(family).Set(float64(n))
}

// ServicePortsByReason records how many Service ports have which reason now. One that is no longer named has none.
func (r *Recorder) ServicePortsByReason(byReason map[PortReason]int) {
	r.servicePortsByReason.set(byReason)
}

// NoLocalEndpoints records for how many Service ports of a family a Local policy drops traffic now. The policy is PolicyInternal or
// PolicyExternal.
func (r *Recorder) NoLocalEndpoints(family, policy string, n int) {
	r.noLocalEndpoints.WithLabelValues(family, policy).Set(float64(n))
}

// FrontendsContested records how many frontends several Services want now.
func (r *Recorder) FrontendsContested(n int) { r.contested.Set(float64(n)) }
