// Package forecast says where new connections go, over all nodes and Services: as the cluster is, under other settings,
// and after changes that have not been made.
//
// It knows API objects as they are, so that it can change them. What a Service with other settings means is decided by
// the same functions as in the proxy (policy, selection), and the hints that the EndpointSlice controller would write
// come from that controller's own packages, without their randomness: forecasts of the same objects are the same.
package forecast
