//go:build tools

// Package tools pins grpc-go's interop client and server and what they are built from, as old as Debian's Go needs it.
package tools

import (
	_ "google.golang.org/grpc/interop/client"
	_ "google.golang.org/grpc/interop/server"
)
