//go:build tools

// Package tools pins h2spec and what it is built from, as old as Debian's Go needs it.
package tools

import _ "github.com/summerwind/h2spec/cmd/h2spec"
