package config

import (
	"slices"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// The modes of kube-proxy, including former ones. In all of them this proxy programs only nftables.
const (
	modeIPTables    = "iptables"
	modeIPVS        = "ipvs"
	modeNFTables    = "nftables"
	modeUserspace   = "userspace"   // until 1.25
	modeKernelspace = "kernelspace" // on Windows
)

// modes are the valid modes of a file. An empty one is iptables, as in kube-proxy.
var modes = []string{"", modeIPTables, modeIPVS, modeNFTables, modeUserspace, modeKernelspace}

// appliesInMode reports whether an otherwise ignored field has an effect because it belongs to the file's mode.
// kube-proxy's IPVS mode has no masqueradeAll of its own and reads that of iptables.
func appliesInMode(field string, mode v1alpha1.ProxyMode) bool {
	switch field {
	case "iptables.masqueradeAll":
		return mode != modeNFTables
	case "iptables.syncPeriod":
		return mode != modeNFTables && mode != modeIPVS
	case "ipvs.syncPeriod":
		return mode == modeIPVS
	}
	return false
}

func appliesInSomeMode(field string) bool {
	return slices.ContainsFunc(modes, func(mode string) bool { return appliesInMode(field, v1alpha1.ProxyMode(mode)) })
}

// applyModeSection copies the settings of the file's mode to the section nftables, which is the one that is programmed:
// a setting for one mode is meant for the other as well. It returns a note for each setting that has an effect only in
// another mode.
func applyModeSection(c *Configuration) []string {
	if c.Mode == modeNFTables {
		return nil
	}
	var notes []string
	for _, field := range []string{"nftables.masqueradeAll", "nftables.syncPeriod"} {
		if text := Get(c, field); text != "false" && text != "0s" {
			notes = append(notes, field+": "+otherModes)
		}
	}
	c.NFTables.MasqueradeAll, c.NFTables.SyncPeriod = c.IPTables.MasqueradeAll, c.IPTables.SyncPeriod
	if c.Mode == modeIPVS {
		c.NFTables.SyncPeriod = c.IPVS.SyncPeriod
	}
	return notes
}
