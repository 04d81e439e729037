// Command image builds Fairlead's container image without a container daemon: an OCI
// image layout for amd64 and arm64 with one static binary, and beside it the binaries,
// a list of what is linked into them (SPDX) and checksums. The same sources give the
// same bytes, wherever and whenever it runs.
//
//	make image VERSION=v0.5.0
//
// The result is copied to a registry by any tool that reads an OCI layout.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// request is what to build.
type request struct {
	root     string // the repository
	out      string // the folder for the result; what an earlier run left there is replaced
	version  string
	revision string
	created  time.Time // the date of everything inside
	archs    []string  // the kinds of processor, all on linux
}

func main() {
	r := request{}
	flag.StringVar(&r.root, "root", "../..", "the repository")
	flag.StringVar(&r.out, "out", "../../bin/image", "where to write the result; an earlier one is replaced")
	flag.StringVar(&r.version, "version", "dev", "the version, which is also the image's tag")
	flag.StringVar(&r.revision, "revision", "", "the commit that is built")
	archs := flag.String("archs", "amd64,arm64", "the kinds of processor, with commas between")
	flag.Parse()
	r.archs = strings.Split(*archs, ",")
	var err error
	if r.created, err = sourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err == nil {
		err = r.build()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// sourceDate reads the seconds since 1970 that stand for "when the sources were last
// changed"; none means 1970 itself, which is at least the same everywhere.
func sourceDate(seconds string) (time.Time, error) {
	if seconds == "" {
		seconds = "0"
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q and must be a number of seconds since 1970", seconds)
	}
	return time.Unix(n, 0).UTC(), nil
}

// build writes everything anew.
func (r request) build() error {
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("remove the earlier result: %w", err)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var binaries []binary
	for _, arch := range r.archs {
		b, err := r.compile(arch)
		if err != nil {
			return err
		}
		if err := r.writeSBOM(b); err != nil {
			return err
		}
		binaries = append(binaries, b)
	}
	if err := r.writeLayout(binaries); err != nil {
		return err
	}
	archive := filepath.Join(r.out, "fairlead-oci.tar")
	if err := tarFolder(archive, filepath.Join(r.out, "oci"), r.created); err != nil {
		return err
	}
	return writeChecksums(r.out)
}
