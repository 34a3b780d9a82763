package rules

// The objects here have only the fields on which decisions depend, so a field or an enum value that a later Kubernetes
// adds changes nothing. Their JSON is that of Kubernetes.

// Metadata is the metadata of an object.
type Metadata struct {
	Name              string            `json:"name"`
	GenerateName      string            `json:"generateName"`
	Namespace         string            `json:"namespace"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp string            `json:"deletionTimestamp"` // empty unless it is being deleted
}

// Service is a v1 Service.
type Service struct {
	Metadata Metadata    `json:"metadata"`
	Spec     ServiceSpec `json:"spec"`
}

// ServiceSpec is the spec of a Service. In a review the API server has applied the defaults, but not yet assigned a
// ClusterIP.
type ServiceSpec struct {
	Type                  string            `json:"type"`
	ClusterIP             string            `json:"clusterIP"`
	Selector              map[string]string `json:"selector"`
	InternalTrafficPolicy string            `json:"internalTrafficPolicy"`
	ExternalTrafficPolicy string            `json:"externalTrafficPolicy"`
	TrafficDistribution   *string           `json:"trafficDistribution"`
	SessionAffinity       string            `json:"sessionAffinity"`
	// PublishNotReadyAddresses is set on Services through which the members of a StatefulSet find each other.
	PublishNotReadyAddresses bool `json:"publishNotReadyAddresses"`
	// TopologyKeys is the field that Kubernetes 1.22 removed. API servers drop it; a file may still have it.
	TopologyKeys []string `json:"topologyKeys"`
}

// Namespace is a v1 Namespace.
type Namespace struct {
	Metadata Metadata `json:"metadata"`
}
