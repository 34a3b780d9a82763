package forecast

import "github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"

// Report is where new connections go. All shares are parts of 1 of all attempted connections, including refused ones:
// the sum of what stays in the zone, goes to other zones, has unknown zones, and is refused is 1.
//
// Its JSON names are an interface: scripts read them.
type Report struct {
	Nodes int `json:"nodes"`
	// Namespace or Service, as namespace/name, is the selection of the forecast; both empty means all Services.
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service,omitempty"`
	// NodesWithoutZone and NodesWithoutRegion count the Nodes without the label, or with an empty one. If those are all
	// Nodes, the share that stays in a zone, or a region, is unknown.
	NodesWithoutZone   int `json:"nodesWithoutZone"`
	NodesWithoutRegion int `json:"nodesWithoutRegion"`
	// Notes are sentences about the whole cluster; never null.
	Notes []string `json:"notes"`
	// Zones are the rows and columns of a matrix. The last ones are for all other zones, and for unknown zones.
	Zones []string `json:"zones"`
	// ZonesInAll is the number of zones with Nodes. If a matrix cannot name them all, it names those with most demand.
	ZonesInAll int `json:"zonesInAll"`
	// Demand describes the demand of the forecast.
	Demand string `json:"demand"`
	// Incomplete are sentences about parts of the demand that the forecast lacks; none if it is complete.
	Incomplete []string `json:"incomplete,omitempty"`
	// Settings are the sums over all Services, by their weights, under each setting.
	Settings []Total `json:"settings"`
	// Services are the selected Services that are served, in the order of their names.
	Services []Service `json:"services"`
	// NotServed are the Services without connections to endpoints.
	NotServed []NotServed `json:"notServed"`
	// EvacuatedNodes is the number of Nodes that are being evacuated, and OnlyEvacuated are the Services that would
	// have endpoints only there; never null.
	EvacuatedNodes int             `json:"evacuatedNodes"`
	OnlyEvacuated  []OnlyEvacuated `json:"onlyEvacuated"`
	// Costs are the costs of bytes to other zones in a month under each setting, of BytesInMonth in all, at PerGB; none
	// without a price.
	Costs        []Cost  `json:"costs,omitempty"`
	BytesInMonth float64 `json:"bytesInMonth,omitempty"`
	PerGB        float64 `json:"perGB,omitempty"`
}

// Total is the result of a setting for all Services.
type Total struct {
	Setting string `json:"setting"`
	Shares
	// Busiest is the endpoint with the highest load relative to the others of its Service.
	Busiest        Busiest `json:"busiest"`
	BusiestService string  `json:"busiestService"`
	// Matrix is the traffic from the zone of a row to that of a column, as a part of 1 of all demand. Its sum plus
	// the refused share is 1.
	Matrix [][]float64 `json:"matrix"`
}

// Shares are the shares of all connections by where they go, and the refused share.
type Shares struct {
	// Node stays on the client's node, Zone in its zone (including the node), and Region in its region (including the
	// zone).
	Node   float64 `json:"node"`
	Zone   float64 `json:"zone"`
	Region float64 `json:"region"`
	// OtherZones leaves the zone. UnknownZones leaves the node, and the zone of client or endpoint is unknown.
	OtherZones   float64 `json:"otherZones"`
	UnknownZones float64 `json:"unknownZones"`
	Refused      float64 `json:"refused"`
}

// pointers returns pointers to all shares.
func (s *Shares) pointers() [6]*float64 {
	return [...]*float64{&s.Node, &s.Zone, &s.Region, &s.OtherZones, &s.UnknownZones, &s.Refused}
}

// add adds other shares, multiplied by part.
func (s *Shares) add(others *Shares, part float64) {
	from := others.pointers()
	for i, to := range s.pointers() {
		*to += *from[i] * part
	}
}

// round rounds all shares, so that those by zone and the refused share still sum to 1.
func (s *Shares) round() {
	explain.RoundParts(&s.Zone, &s.OtherZones, &s.UnknownZones, &s.Refused)
	s.Node, s.Region = min(explain.Rounded(s.Node), s.Zone), max(explain.Rounded(s.Region), s.Zone)
}

// hasZones reports whether the share that stays in a zone is known.
func (s *Shares) hasZones() bool { return s.Zone > 0 || s.OtherZones > 0 || s.UnknownZones == 0 }

// Busiest is the endpoint with the highest load.
type Busiest struct {
	Endpoint string `json:"endpoint"` // address:port, empty if no endpoint gets anything
	Node     string `json:"node"`
	// Load is a multiple of the mean of its Service's endpoints; in a comparison, of their mean before the changes.
	Load float64 `json:"load"`
}

// Service is one Service under all settings.
type Service struct {
	Service  string `json:"service"` // namespace/name
	Headless bool   `json:"headless,omitempty"`
	// Weight is its part of the sums over Services; all weights together are 1.
	Weight float64 `json:"weight"`
	// DemandSource is the source of the demand: labels of Nodes, named clients, a measurement, or a file.
	DemandSource string `json:"demandSource"`
	// EndpointsByZone counts the usable endpoints of the first port; "" are those with an unknown zone.
	EndpointsByZone map[string]int `json:"endpointsByZone"`
	// Endpoints are those of the first port, at most MaxListed of them.
	Endpoints   []Endpoint   `json:"endpoints"`
	Projections []Projection `json:"outlooks"`
	// Causes are why connections are refused, and settings without effect; never null.
	Causes []Problem `json:"causes"`
	Advice *Advice   `json:"advice"` // null if nothing would improve

	// asMeasured is the present setting, planned with measured demand; nil if it already is, or if there is
	// no measured demand.
	asMeasured *Projection
}

// MaxListed is how many endpoints of a Service are listed with their loads. The forecast itself covers all.
const MaxListed = 100

// Endpoint is one of a Service's endpoints.
type Endpoint struct {
	Address string `json:"address"`
	Node    string `json:"node"`
	Zone    string `json:"zone"`
	// State is ready, terminating, evacuated or unready. Only ready ones are used while there are any.
	State string `json:"state"`
}

// Projection is one Service under one setting.
type Projection struct {
	Setting string `json:"setting"`
	Shares
	// PlannedWith is the demand with which the bound is planned: labels, clients or measured; empty without a bound.
	PlannedWith string `json:"plannedWith,omitempty"`
	// Keys are the shares of the endpoints that each topology key matches, in their order; empty without keys.
	Keys    []KeyShare `json:"keys,omitempty"`
	Busiest Busiest    `json:"busiest"`
	// Used is how many of the first port's endpoints get any connections.
	Used int `json:"used"`
	// Loads are the loads of the Service's Endpoints, as multiples of their mean; in a comparison, of the mean before
	// the changes.
	Loads []float64 `json:"loads"`
	// Note is why the setting has no meaning here; empty if it has one.
	Note string `json:"note,omitempty"`

	source    string    // see Service.DemandSource
	zones     []float64 // Total.Matrix of the Service alone, row by row
	evacuated float64   // the part of all connections that still goes to evacuated Nodes
	// onlyEvacuated are the Nodes of those clients.
	onlyEvacuated map[string]bool
	refusedShares []refusedShare
}

// KeyShare is the share of the endpoints that one key matches and no earlier key does.
type KeyShare struct {
	Key   string  `json:"key"`
	Share float64 `json:"share"`
}

// NotServed is a Service without connections to endpoints.
type NotServed struct {
	Service string `json:"service"`
	Reason  string `json:"why"`
}

// Advice is a better setting for a Service.
type Advice struct {
	Setting  string `json:"setting"`
	Sentence string `json:"sentence"`
	// Patch is what to put into the Service's manifest, as YAML. A null means to remove the field.
	Patch string `json:"set"`
}
