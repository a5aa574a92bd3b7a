#!/usr/bin/env bash
# Stands in ssh's place: runs what mpirun wants on the host $1 in the network namespace of that host.
host=$1
shift
exec unshare --uts ip netns exec "buckets${host##*.}" bash -c "hostname host${host##*.}; $*"
