// Command image builds Fairlead's container image without a container daemon: an OCI image
// layout for amd64 and arm64 with one static binary, and next to it the binaries, a list
// of what is linked into them (SPDX) and checksums. The same sources result in the same
// bytes, wherever and whenever it runs.
//
//	make image VERSION=v0.5.0
//
// With the programs that programs.sh has downloaded it also builds a second image, for the
// iptables modes, whose tag ends in -iptables:
//
//	make image-iptables VERSION=v0.5.0
//
// Any tool that reads an OCI layout can copy the result to a registry.
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
	out      string // the folder for the result; the output of an earlier run in it is replaced
	version  string
	revision string
	created  time.Time // the date of everything inside
	archs    []string  // the processor architectures, all on linux
	programs string    // the folder of packages for the second image; "": there is none
}

func main() {
	r := request{}
	flag.StringVar(&r.root, "root", "../..", "the repository")
	flag.StringVar(&r.out, "out", "../../bin/image", "where to write the result; an earlier one is replaced")
	flag.StringVar(&r.version, "version", "dev", "the version, which is also the image's tag")
	flag.StringVar(&r.revision, "revision", "", "the commit that is built")
	archs := flag.String("archs", "amd64,arm64", "the kinds of processor, with commas between")
	flag.StringVar(&r.programs, "programs", "", "the folder into which programs.sh has downloaded packages, for the image of the iptables modes; \"\": only the other one")
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

// sourceDate parses the seconds since 1970 of the last change of the sources. An empty
// text means 1970 itself, which is at least the same everywhere.
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

// build deletes the earlier result and builds everything again.
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
		if err := r.writeSBOM(b.name, b, nil); err != nil {
			return err
		}
		binaries = append(binaries, b)
	}
	if err := r.write(plain(), binaries); err != nil {
		return err
	}
	if r.programs != "" {
		f := flavour{name: "fairlead-iptables", dir: "oci-iptables", suffix: "-iptables", path: "/usr/local/bin:/usr/sbin:/", with: map[string]programs{}}
		for _, b := range binaries {
			p, err := collect(filepath.Join(r.programs, b.arch), r.created)
			if err != nil {
				return err
			}
			if err := r.writeSBOM(f.name+"-linux-"+b.arch, b, p.debs); err != nil {
				return err
			}
			f.with[b.arch] = p
		}
		if err := r.write(f, binaries); err != nil {
			return err
		}
	}
	return writeChecksums(r.out)
}

// flavour is one of the images.
type flavour struct {
	name, dir    string // of the archive, and of the folder of the layout
	suffix, path string // of the tag, and where programs are looked up
	with         map[string]programs
}

func plain() flavour { return flavour{name: "fairlead", dir: "oci", path: "/usr/local/bin:/"} }

// write writes an image as a layout, and as an archive of it.
func (r request) write(f flavour, binaries []binary) error {
	if err := r.writeLayout(f, binaries); err != nil {
		return err
	}
	return tarFolder(filepath.Join(r.out, f.name+"-oci.tar"), filepath.Join(r.out, f.dir), r.created)
}
