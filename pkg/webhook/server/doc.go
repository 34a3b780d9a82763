// Package server answers admission reviews over HTTPS.
//
//	bytes ──► request ──► package rules ──► verdict ──► AdmissionReview with a response
//	   └─────────┴── refusal: 4xx or 503 with a reason       failure: 500
//
// The API server's handling of answers decides what we may answer. It takes allowed: false as a decision, whatever the
// webhook's failurePolicy is; anything but a 200 is a failed call, for which the failurePolicy decides. So allowed:
// false is used only together with the broken rules, and a review that cannot be understood, or fails internally, is
// never denied. controller-runtime's own admission.Webhook denies both, and that is why its handler is not used here.
//
// The body of a 4xx or 5xx is a metav1.Status, because of an answer that is not one the API server's client shows only
// what it thinks of the number. A 503 has a Retry-After of one second: that client then asks again by itself, within
// the webhook's timeoutSeconds.
//
// The cost of requests is bounded (Limits): memory is taken as a body arrives, and large reviews are worked on one at a
// time, without making small ones wait or lack memory.
//
// Leaving takes several steps, for the API server keeps connections open to Pods that are terminating
// (kubernetes/kubernetes#127335), and never asks again if one of them closes under a review: from the signal on the
// server is not ready, and each answer asks the client to close its connection; all are still answered for as long as
// it takes the cluster's proxies to learn of it; then it closes.
package server
