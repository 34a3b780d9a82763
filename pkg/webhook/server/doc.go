// Package server responds to admission reviews over HTTPS.
//
//	bytes ──► request ──► package rules ──► decision ──► AdmissionReview with a response
//	   └─────────┴── rejection: 4xx or 503 with a reason     failure: 500
//
// The API server's handling of responses determines which ones are allowed. It takes allowed: false as a decision,
// whatever the webhook's failurePolicy is; anything but a 200 is a failed call, for which the failurePolicy decides. So
// allowed: false is used only together with the violated rules. A review that cannot be parsed or fails internally is
// never denied. controller-runtime's own admission.Webhook denies both, so its handler is not used here.
//
// The body of a 4xx or 5xx is a metav1.Status: of any other body, the API server's client shows only a generic text for
// the status code. A 503 has a Retry-After of one second: that client then retries within the webhook's timeoutSeconds.
//
// The cost of requests is bounded (Limits): memory is acquired as a body arrives, and large reviews are processed one
// at a time, without delaying small ones or using up their memory.
//
// Shutdown takes several steps, because the API server keeps connections open to terminating Pods
// (kubernetes/kubernetes#127335), and never retries if one of them closes during a review. From the signal on, the
// server is not ready, and each response asks the client to close its connection. It continues to respond for the time
// that the cluster's proxies need to notice. Then it closes.
//
// To change the response to a review, start in decide.go and decision.go; for rejected requests, in rejection.go,
// request.go, body.go and limits.go; for shutdown, in drain.go.
package server
