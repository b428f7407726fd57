-- The kernels that take the most time on each rank: five of each.
select run, rank, place, name, calls, total_ns, max_ns
from (
    select run, rank, name, sum(calls) as calls, sum(total_ns) as total_ns, max(max_ns) as max_ns,
        row_number() over (partition by run, rank order by sum(total_ns) desc, name) as place
    from kernels
    where kind = 'kernel'
    group by run, rank, name
) ranked
where place <= 5
order by run, rank, place
