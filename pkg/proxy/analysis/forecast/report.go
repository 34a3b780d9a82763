package forecast

import "github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"

// Report is where new connections go. All shares are parts of 1 of all connections that are asked for, refused ones too:
// what stays in the zone, what goes to other zones, what has unknown zones, and what is refused make 1.
//
// Its JSON names are an interface: scripts read them.
type Report struct {
	Nodes int `json:"nodes"`
	// Namespace is the one that was asked about, and Service the one, as namespace/name; both empty: all of them.
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service,omitempty"`
	// NodesWithoutZone and NodesWithoutRegion count the Nodes without the label, or with an empty one. If that is all of
	// them, it is unknown what stays in a zone, or a region.
	NodesWithoutZone   int `json:"nodesWithoutZone"`
	NodesWithoutRegion int `json:"nodesWithoutRegion"`
	// Notes are sentences about the whole cluster; never null.
	Notes []string `json:"notes"`
	// Zones are the rows and columns of a matrix. The last ones are for all other zones, and for unknown zones.
	Zones []string `json:"zones"`
	// ZonesInAll is how many zones Nodes are in. If they are more than a matrix names, it names those with most demand.
	ZonesInAll int `json:"zonesInAll"`
	// Demand says which clients' connections the forecast is for.
	Demand string `json:"demand"`
	// Incomplete are sentences about which part of the demand the forecast is without; none if it has all.
	Incomplete []string `json:"incomplete,omitempty"`
	// Settings has all of Services together, by their weights, under each setting.
	Settings []Total `json:"settings"`
	// Services are those that were asked about and are served, in the order of their names.
	Services []Service `json:"services"`
	// NotServed are the Services without connections to endpoints.
	NotServed []NotServed `json:"notServed"`
	// EvacuatedNodes is how many Nodes are being evacuated, and OnlyEvacuated are the Services that would have endpoints
	// only there; never null.
	EvacuatedNodes int             `json:"evacuatedNodes"`
	OnlyEvacuated  []OnlyEvacuated `json:"onlyEvacuated"`
	// Costs are what bytes to other zones cost in a month under each setting, of BytesInMonth in all, at PerGB; none without
	// a price.
	Costs        []Cost  `json:"costs,omitempty"`
	BytesInMonth float64 `json:"bytesInMonth,omitempty"`
	PerGB        float64 `json:"perGB,omitempty"`
}

// Total is the result of a setting for all Services.
type Total struct {
	Setting string `json:"setting"`
	Shares
	// Busiest is the endpoint that expects most compared with the others of its Service.
	Busiest        Busiest `json:"busiest"`
	BusiestService string  `json:"busiestService"`
	// Matrix is what goes from the zone of a row to that of a column, as a part of 1 of all demand. Its sum and the
	// refused part make 1.
	Matrix [][]float64 `json:"matrix"`
}

// Shares are the parts of all connections that stay near, that do not, and that are refused.
type Shares struct {
	// Node stays on the client's node, Zone there or in its zone, Region in these or in its region.
	Node   float64 `json:"node"`
	Zone   float64 `json:"zone"`
	Region float64 `json:"region"`
	// OtherZones leaves the zone. UnknownZones leaves the node, and the zone of client or endpoint is unknown.
	OtherZones   float64 `json:"otherZones"`
	UnknownZones float64 `json:"unknownZones"`
	Refused      float64 `json:"refused"`
}

// parts are all of them.
func (s *Shares) parts() [6]*float64 {
	return [...]*float64{&s.Node, &s.Zone, &s.Region, &s.OtherZones, &s.UnknownZones, &s.Refused}
}

// add adds a part of others.
func (s *Shares) add(others *Shares, part float64) {
	from := others.parts()
	for i, to := range s.parts() {
		*to += *from[i] * part
	}
}

// round rounds all of them, beside others that make 1 with what is refused.
func (s *Shares) round() {
	explain.RoundParts(&s.Zone, &s.OtherZones, &s.UnknownZones, &s.Refused)
	s.Node, s.Region = min(explain.Rounded(s.Node), s.Zone), max(explain.Rounded(s.Region), s.Zone)
}

// hasZones reports whether it is known what stays in a zone.
func (s *Shares) hasZones() bool { return s.Zone > 0 || s.OtherZones > 0 || s.UnknownZones == 0 }

// Busiest is the endpoint that expects most.
type Busiest struct {
	Endpoint string `json:"endpoint"` // address:port, empty if no endpoint gets anything
	Node     string `json:"node"`
	// Load is a multiple of the mean of its Service's endpoints; after changes, of their mean before.
	Load float64 `json:"load"`
}

// Service is one Service under all settings.
type Service struct {
	Service  string `json:"service"` // namespace/name
	Headless bool   `json:"headless,omitempty"`
	// Weight is its part of the sums over Services: of all of them together, it is 1.
	Weight float64 `json:"weight"`
	// DemandSource is whose connections are forecast: as labels of Nodes say, by named clients, as measured, or by a file.
	DemandSource string `json:"demandSource"`
	// EndpointsByZone counts the usable endpoints of the first port; "" are those whose zone is unknown.
	EndpointsByZone map[string]int `json:"endpointsByZone"`
	// Endpoints are those of the first port, at most MaxListed of them.
	Endpoints []Endpoint   `json:"endpoints"`
	Outlooks  []Projection `json:"outlooks"`
	// Causes are why connections are refused, and settings without effect; never null.
	Causes []Problem `json:"causes"`
	Advice *Advice   `json:"advice"` // null where nothing would be gained

	// asMeasured is the present setting, but planned with measured demand; nil if it is, or that is not known.
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
	// PlannedWith is the demand that the bound is planned with: labels, clients or measured; empty without a bound.
	PlannedWith string `json:"plannedWith,omitempty"`
	// Keys is what goes to the endpoints that each topology key matches, in their order; empty without keys.
	Keys    []KeyShare `json:"keys,omitempty"`
	Busiest Busiest    `json:"busiest"`
	// Used is how many of the first port's endpoints get any connections.
	Used int `json:"used"`
	// Loads is what each of the Service's Endpoints expects, as a multiple of their mean; after changes, of the mean
	// before.
	Loads []float64 `json:"loads"`
	// Note says why the setting has no meaning here; empty if it has one.
	Note string `json:"note,omitempty"`

	source    string // see Service.DemandSource
	zones     []float64
	evacuated float64 // the part of all connections that still goes to evacuated Nodes
	// onlyEvacuated are the Nodes of those clients.
	onlyEvacuated map[string]bool
	refusedShares []refusedShare
}

// KeyShare is what goes to the endpoints that one key matches and no earlier key does.
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
	// Set is what to put into the Service's manifest, as YAML. A null means to remove the field.
	Set string `json:"set"`
}
