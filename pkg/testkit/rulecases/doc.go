// Package rulecases has the test cases for all implementations of the topology rules: package rules, the webhook behind
// a real API server, and the policies in manifests/webhook-cel. Only tests import it.
//
// The cases are in cases/*.yaml, a list in each file. A new case applies to all three.
package rulecases
