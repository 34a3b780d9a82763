// Package rulecases has the cases on which all judges of topology settings must agree: package rules, the webhook
// behind a real API server, and the policies in manifests/webhook-cel. Only tests import it.
//
// The cases are in cases/*.yaml, a list in each file. A new case holds for all three.
package rulecases
