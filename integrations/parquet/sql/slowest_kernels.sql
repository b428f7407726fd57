-- The kernels that take the most time on each rank: five of each.
select run, rank, place, name, calls, total_ns, max_ns
from (
    select run, rank, name, calls, total_ns, max_ns,
        row_number() over (partition by run, rank order by total_ns desc, name) as place
    from (
        select k.run as run, k.rank as rank, k.name as name, sum(k.calls) as calls, sum(k.total_ns) as total_ns,
            max(k.max_ns) as max_ns
        from kernels k
        where k.kind = 'kernel'
        group by k.run, k.rank, k.name
    ) sums
) ranked
where place <= 5
order by run, rank, place
