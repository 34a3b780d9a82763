package forecast

import "fmt"

// Report is where new connections go. All shares are parts of 1 of the connections that some endpoint answers, but for
// Refused, which is a part of all.
//
// Its JSON names are an interface: scripts read them.
type Report struct {
	Nodes int `json:"nodes"`
	// Zones are the rows and columns of a matrix. The last ones are of all other zones, and of what has none.
	Zones []string `json:"zones"`
	// Demand says whose connections were reckoned with.
	Demand string `json:"demand"`
	// Settings has all Services together, under each setting. Each Service counts the same.
	Settings []Total `json:"settings"`
	// Services are in the order of their names.
	Services []Service `json:"services"`
	// NotServed are the Services without connections to endpoints.
	NotServed []NotServed `json:"notServed"`
}

// Total is what a setting makes of all Services.
type Total struct {
	Setting string `json:"setting"`
	Shares
	// Busiest is the endpoint that expects most beside the others of its Service.
	Busiest        Busiest `json:"busiest"`
	BusiestService string  `json:"busiestService"`
	// Matrix is what goes from the zone of a row to that of a column, as a part of 1 of all that is answered.
	Matrix [][]float64 `json:"matrix"`
}

// Shares are which parts of the connections stay near.
type Shares struct {
	Node    float64 `json:"node"`
	Zone    float64 `json:"zone"`
	Region  float64 `json:"region"`
	Refused float64 `json:"refused"`
}

// Busiest is the endpoint that expects most.
type Busiest struct {
	Endpoint string `json:"endpoint"` // address:port, empty if nobody gets anything
	Node     string `json:"node"`
	// Load is how many times the mean of its Service's endpoints.
	Load float64 `json:"load"`
}

// Service is one Service under all settings.
type Service struct {
	Service  string `json:"service"` // namespace/name
	Headless bool   `json:"headless,omitempty"`
	// EndpointsByZone counts the endpoints of the first port that may be used; "" are those of no known zone.
	EndpointsByZone map[string]int `json:"endpointsByZone"`
	// Endpoints are those of the first port, at most MaxListed of them.
	Endpoints []Endpoint `json:"endpoints"`
	Outlooks  []Outlook  `json:"outlooks"`
	Advice    *Advice    `json:"advice"` // null where nothing would be gained
}

// MaxListed is how many endpoints of a Service are listed with their loads. All of them are reckoned with.
const MaxListed = 100

// Endpoint is one of a Service's endpoints.
type Endpoint struct {
	Address string `json:"address"`
	Node    string `json:"node"`
	Zone    string `json:"zone"`
	// State is ready, terminating, evacuated or unready. Only ready ones are used while there are any.
	State string `json:"state"`
}

// Outlook is one Service under one setting.
type Outlook struct {
	Setting string `json:"setting"`
	Shares
	// Keys is what goes to the endpoints that each topology key matches, in their order; empty without keys.
	Keys    []KeyShare `json:"keys,omitempty"`
	Busiest Busiest    `json:"busiest"`
	// Used is how many of the first port's endpoints get any connections.
	Used int `json:"used"`
	// Loads is what each of the Service's Endpoints expects, as a multiple of their mean.
	Loads []float64 `json:"loads"`
	// Note says why the setting means nothing here; empty if it does.
	Note string `json:"note,omitempty"`

	zones []float64 // of what is answered
}

// KeyShare is what goes to the endpoints that one key matches, and none before it.
type KeyShare struct {
	Key   string  `json:"key"`
	Share float64 `json:"share"`
}

// NotServed is a Service without connections to endpoints.
type NotServed struct {
	Service string `json:"service"`
	Why     string `json:"why"`
}

// Advice is a better setting for a Service.
type Advice struct {
	Setting  string `json:"setting"`
	Sentence string `json:"sentence"`
	// Set is what to put into the Service's manifest, as YAML.
	Set string `json:"set"`
}

// Missed says, as a sentence each, which Services have an endpoint that expects more than maxLoad times the mean, or keep
// less than minNear of their connections in the zone; 0: that is not asked. It is about the first setting: as it is.
func (r *Report) Missed(maxLoad, minNear float64) []string {
	var sentences []string
	for i := range r.Services {
		name, now := r.Services[i].Service, &r.Services[i].Outlooks[0]
		if maxLoad > 0 && now.Busiest.Load > maxLoad {
			sentences = append(sentences, fmt.Sprintf("%s: %s expects %s times the mean, and --max-load is %g",
				name, now.Busiest.Endpoint, times(now.Busiest.Load), maxLoad))
		}
		if near := now.Zone * (1 - now.Refused); minNear > 0 && near < minNear {
			sentences = append(sentences, fmt.Sprintf("%s: %s of its connections stay in the zone, and --min-near is %g",
				name, percent(near), minNear))
		}
	}
	return sentences
}
