// Package forecast computes where new connections go, over all nodes and Services: with the cluster as it is, under
// other settings, and after hypothetical changes.
//
// It works on API objects, so that it can change them. The same functions as in the proxy (policy, selection) evaluate
// a Service with other settings, and the hints that the EndpointSlice controller would write come from that
// controller's own packages, without their randomness: forecasts of the same objects are the same.
//
// Where to make a change: demand.go reads the file of --demand, measurement.go applies it to a cluster and reports
// missing parts, and unmeasured.go explains why there is no measured demand. problems.go has refused connections and
// settings without effect, by the rules in cmd/proxy/forecast_rules.go; advice.go has better settings, compare.go the
// comparison before and after, evacuated.go the effect of evacuations, and limits.go limits for pipelines. why.go
// explains why an endpoint is not used, with the changes in steps.go. page.html is the page, and e2e/forecast tests it
// in a browser.
package forecast
