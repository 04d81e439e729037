package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Programs are the names of one backend's programs.
type Programs struct {
	Suffix string // "-legacy", "-nft", or "" where only one backend is installed
}

// of returns the name of a family's program: "ip6tables-nft-restore".
func (p Programs) of(f Family, verb string) string {
	name := f.program() + p.Suffix
	if verb != "" {
		name += "-" + verb
	}
	return name
}

// ErrNoPrograms: the programs are not installed.
var ErrNoPrograms = errors.New("iptables is not installed")

// ErrNoProgram: a program of one family is not installed.
var ErrNoProgram = errors.New("program not installed")

// Installed finds the programs of a backend.
func Installed(b Backend) (Programs, error) {
	p := Programs{Suffix: "-" + string(b)}
	_, err := exec.LookPath(p.of(IPv4, "restore"))
	if err == nil {
		return p, nil
	}
	out, verr := exec.Command("iptables", "--version").Output()
	if verr == nil && (b == NFT) == strings.Contains(string(out), "nf_tables") {
		return Programs{}, nil
	}
	return Programs{}, fmt.Errorf("%w: %w", ErrNoPrograms, err)
}

// Detect returns the backend that this host uses, by the usual rule: the one that holds
// kubelet's hint chains, else the one with more rules; nf_tables if both are
// empty. With the wrong backend, packets would bypass other programs' rules in the other one.
func Detect(ctx context.Context) (Backend, error) {
	nft, nftErr := Installed(NFT)
	legacy, legacyErr := Installed(Legacy)
	switch {
	case nftErr != nil && legacyErr != nil:
		return "", fmt.Errorf("%w; install the package iptables, or use --proxy-mode nftables, which needs no programs", nftErr)
	case nftErr != nil:
		return Legacy, nil
	case legacyErr != nil:
		return NFT, nil
	}
	inNFT := look(ctx, nft)
	if inNFT.hint {
		return NFT, nil
	}
	if !LegacyInUse() {
		return NFT, nil
	}
	inLegacy := look(ctx, legacy)
	if inLegacy.hint || inLegacy.rules > inNFT.rules {
		return Legacy, nil
	}
	return NFT, nil
}

// LegacyInUse reports whether x_tables holds any table of this namespace, without making
// the kernel load a module.
func LegacyInUse() bool {
	for _, file := range [...]string{"/proc/thread-self/net/ip_tables_names", "/proc/thread-self/net/ip6_tables_names"} {
		if names, err := os.ReadFile(file); err == nil && len(bytes.TrimSpace(names)) > 0 {
			return true
		}
	}
	return false
}

// found is the content of one backend.
type found struct {
	rules int
	hint  bool
}

func look(ctx context.Context, p Programs) found {
	var out found
	for _, f := range [...]Family{IPv4, IPv6} {
		text, err := exec.CommandContext(ctx, p.of(f, "save")).Output()
		if err != nil {
			continue // the host lacks that family
		}
		for l := range bytes.Lines(text) {
			switch {
			case bytes.HasPrefix(l, []byte("-A ")):
				out.rules++
			case bytes.HasPrefix(l, []byte(":KUBE-IPTABLES-HINT ")), bytes.HasPrefix(l, []byte(":KUBE-KUBELET-CANARY ")):
				out.hint = true
			}
		}
	}
	return out
}
