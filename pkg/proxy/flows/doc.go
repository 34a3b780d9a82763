// Package flows knows which UDP flows may go on, and which have to be looked at.
package flows
